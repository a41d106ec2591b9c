"""What people see: terminal tables and pages."""

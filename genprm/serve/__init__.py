"""The judge as a service: its own routes, and those of scalar PRMs that it can stand in for."""

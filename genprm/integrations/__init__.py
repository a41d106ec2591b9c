"""Adapters with which a verifier takes the place of a scalar PRM in other projects; none of them is imported here."""

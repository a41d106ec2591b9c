"""What runs on the far side of the sandbox: the fork server and its confined children.

This package is executed as its own program (`python DIRECTORY`) with a clean environment and imports nothing of
genprm, so that no key and no text of a user is ever in the memory that the hostile code shares.
"""

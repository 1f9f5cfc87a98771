"""Every reader of what somebody else has written, given what nobody should have written.

By hypothesis in the tests; in `make fuzz` by a plain random generator, and by atheris where that installs.
"""

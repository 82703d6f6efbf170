"""Documents written from the types of a study: tables for people, schemas for editors.

`make settings` writes the tables of config/README.md and the files of
config/schemas; a test holds both to the types. It relies on what fields and types say of
themselves (`sage.fields.about`, docstrings) and adds no text of its own about any setting.
"""

"""Documents written from the types of a study: schemas for editors, tables of methods for people.

`make settings` writes the files of config/schemas and the table of docs/method.md; a test holds
both to the types. It relies on what fields and types say of themselves (`sage.fields.about`,
docstrings) and adds no text of its own about any setting. The site makes its pages of keys of the
schemas (docs/pages.py).
"""

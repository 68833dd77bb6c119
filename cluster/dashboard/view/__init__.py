"""HTML of the page, made on the server.

Begin with page.py.
Imported by the routes.
"""

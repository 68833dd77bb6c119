"""HTTP itself: routes, guards, tokens, streams.

Begin with app.py and serve.py.
Imported by http and dashboard.
"""

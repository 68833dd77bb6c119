"""Operations for users, as typed async functions.

Begin with admin.py; errors.py makes the reports of errors.
Imported by cli, http and dashboard, which have no logic of their own.
"""

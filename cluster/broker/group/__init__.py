"""The group of a broker: registration with name servers, its members, tables that a slave copies from its master.

Begin with registration.py and group_view.py.
Imported by peers, roles and wiring.py.
"""

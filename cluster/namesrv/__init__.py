"""The name server: a registry of brokers and of the topics they have. Source: RouteInfoManager (RocketMQ 4.9.8).

Begin with route_info.py, which is pure, then service.py.
Imported by admin and cli.
"""

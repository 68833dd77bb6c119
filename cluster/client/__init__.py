"""RocketMQ client on trio and asyncio. Internal: applications import twinlog.client.

Begin with client.py, then producer.py and consume/push_consumer.py; api.py has a method for each request.
Imported by broker, admin, observe and cli.
"""

from typing import TYPE_CHECKING

from twinlog.store.util.late_modules import late_modules

__all__ = ["api"]

if TYPE_CHECKING:
    from . import api
else:
    __getattr__ = late_modules(__name__)

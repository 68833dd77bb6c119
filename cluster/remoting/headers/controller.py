"""Requests to RocketMQ 5's controller that brokers answer in its place."""

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import RequestHeader, request_header


@request_header(RequestCode.CONTROLLER_GET_METADATA_INFO)
class GetMetadataInfo(RequestHeader):
    """1005, of 5.x: who leads the controllers?"""


@request_header(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA)
class GetSyncStateData(RequestHeader):
    """1006, of 5.x, body: brokerNames: who is in sync?"""

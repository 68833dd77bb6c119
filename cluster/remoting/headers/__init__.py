"""The header of every request that is sent or served here, and of the responses that clients read.

One class per request code; a request without fields has an empty class, so that its handler can name it.
Field names, types and which are required: RocketMQ's *RequestHeader classes (4.9.8); `5.x` marks later additions.
`broker_name` (bname) and the like come with newer clients and mean nothing to a broker.
"""

"""Messages for consumers and people: by queue offset, by time, by key.

Begin with get_message.py. Source: DefaultMessageStore.getMessage and queryMessage (RocketMQ 4.9.8).
Imported by message_store.py, wiring.py and cluster.
"""

"""The sub-commands of RocketMQ's mqadmin that are used most, as functions that give the text that mqadmin prints."""

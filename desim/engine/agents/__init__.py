"""The engine of single agents on an event loop: any policy, any network."""

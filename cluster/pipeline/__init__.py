"""Store directories as tables, and an audit that proves replicas equal. Source: PySpark's data source API."""

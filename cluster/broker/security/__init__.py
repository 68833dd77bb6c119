"""Access control as RocketMQ 4.9's: accounts and addresses in plain_acl.yml, a signature in each request."""

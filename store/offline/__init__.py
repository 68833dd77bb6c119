"""Looking at a store directory from outside: any RocketMQ's or ours, running or stopped, without changing a byte of it."""

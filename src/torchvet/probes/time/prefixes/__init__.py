"""Text that is made token by token, by a model that is given all earlier tokens again for each new one."""

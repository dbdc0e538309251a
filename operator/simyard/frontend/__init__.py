"""The OCCI servers: HTTP and AMQP over the same handlers, which answer from local copies of our objects."""

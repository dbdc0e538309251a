"""RabbitMQ: who may do what there, and the requests, events and liveness that go over it."""

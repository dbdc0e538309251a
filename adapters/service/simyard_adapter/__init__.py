"""The service adapter: offers a simulation program's attributes and actions over RabbitMQ, from inside a worker."""

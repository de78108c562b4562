"""The swap: Java's clients on our broker, our tests and our demo on Apache Kafka."""

"""The broker's answers: one module per group of APIs, and `api_table`, which lists them all."""

from headworks._broker.handlers.api_table import BROKER_APIS, REQUIRED_ROLES
from headworks._broker.handlers.client import Authorizer, Client
from headworks._broker.handlers.node import Handler, Node, Request

__all__ = ["BROKER_APIS", "REQUIRED_ROLES", "Authorizer", "Client", "Handler", "Node", "Request"]

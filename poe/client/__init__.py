"""Clients that need an event loop: so far the asyncio socket, of the shape of the blocking one."""

from poe.client.async_socket import AsyncSocket, connect

__all__ = ["AsyncSocket", "connect"]

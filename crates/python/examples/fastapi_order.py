"""A FastAPI handler whose order is charged one time, however often it is sent. ``python fastapi_order.py``; needs
``fastapi`` and ``httpx``. ``LEASEHOLD_URL`` names the locks: ``redis://db``."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from fastapi import Body, FastAPI, Header, HTTPException
from fastapi.testclient import TestClient

import leasehold

app = FastAPI()
locks = leasehold.connect(os.environ.get("LEASEHOLD_URL", "memory:"))
charged: list[str] = []


async def charge(item: str) -> dict[str, Any]:
    charged.append(item)  # Here the program pays, with leasehold.current_guard().token.
    return {"receipt": len(charged), "item": item}


@app.post("/orders")
async def order(item: str = Body(embed=True), idempotency_key: str = Header()) -> dict[str, Any]:
    digest = hashlib.sha256(item.encode()).digest()
    once = locks.once(f"order/{idempotency_key}", digest=digest, encode=json.dumps, decode=json.loads, wait=10)
    try:
        receipt: dict[str, Any] = await once.run_async(charge, item)
    except leasehold.InvalidArgument as error:
        raise HTTPException(422, str(error)) from error
    return receipt


def main() -> list[Any]:
    client, headers = TestClient(app), {"Idempotency-Key": "17"}
    return [client.post("/orders", json={"item": item}, headers=headers).json() for item in ("book", "book", "pen")]


if __name__ == "__main__":
    print(*main(), sep="\n")

"""What a tool sends to a provider, and what it reads from the answer."""

from effectonce.providers import provider


class GraphQLError(Exception):
    """What a client of GraphQL raises: the answer is 200, whatever happened."""


def post(client, name, key, body):
    """What a tool sends, with the key where the provider reads it. A protected client puts it
    into a header by itself.
    """
    facts = provider(name).key
    match facts.where, facts.name:
        case "none", _:
            return client.post("/messages", json=body)
        case "header", header:
            return client.post("/refunds", json=body, headers={header: key} if key else {})
        case _, "@idempotent(key:)":
            query = f'mutation {{ refund @idempotent(key: "{key}") {{ id }} }}'
            return client.post("/graphql", json={"query": query, "variables": body})
        case _, "input.id":
            return client.post("/graphql", json={"variables": {"input": body | {"id": key}}})
        case "argument", _:
            return client.patch(f"/sobjects/Refund__c/Key__c/{key}", json=body)
        case _, "inputs[].id, with idProperty":
            given = {"idProperty": "key", "id": key, "properties": body}
            return client.post("/refunds", json={"inputs": [given]})
        case _, "headers.idempotencyKey":
            return client.post("/mails", json=body | {"headers": {"idempotencyKey": key}})
        case _, field:
            return client.post("/refunds", json=body | {field: key})


def result(answer):
    answer.raise_for_status()
    said = answer.json()
    if "errors" in said:
        raise GraphQLError(said["errors"][0]["extensions"]["code"])
    return said["id"]

"""A guard whose events are kept, and the words for them."""

from effectonce import Guard, Retry
from effectonce.stores.memory import MemoryStore

QUICK = Retry(attempts=3, base_s=0, cap_s=0)


def watched(store=None, **settings):
    """A guard and what it tells."""
    seen = []
    return Guard(
        MemoryStore() if store is None else store, observers=[seen.append], **settings
    ), seen


def names(seen, *without):
    """What was told, in order, without what every call tells."""
    dull = {"store", "calling", "attempting", *without}
    return [event.name for event in seen if event.name not in dull]


def only(seen, name):
    """The one event of this name."""
    (event,) = [event for event in seen if event.name == name]
    return event

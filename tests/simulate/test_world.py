import gc

import pytest

from effectonce.simulate._world import World


def test_what_is_planned_happens_in_the_order_of_its_time():
    world, seen = World("1"), []
    for delay_s in (3.0, 1.0, 2.0):
        world.after(delay_s, seen.append, delay_s)

    world.run()

    assert seen == [1.0, 2.0, 3.0]
    assert world.now == 3.0


def test_of_two_things_at_one_moment_the_first_planned_is_first():
    world, seen = World("1"), []
    for name in "abc":
        world.after(1.0, seen.append, name)

    world.run()

    assert seen == ["a", "b", "c"]


def test_what_follows_from_something_happens_too():
    world, seen = World("1"), []

    def again(left):
        seen.append(world.now)
        if left:
            world.after(0.5, again, left - 1)

    world.after(1.0, again, 2)
    world.run()

    assert seen == [1.0, 1.5, 2.0]


def test_a_world_ends_before_what_is_planned_for_later():
    world, seen = World("1"), []
    for delay_s in (1.0, 2.0):
        world.after(delay_s, seen.append, delay_s)

    world.run(2.0)

    assert seen == [1.0]


def test_the_collector_of_garbage_is_as_it_was_even_if_the_world_breaks():
    world = World("1")
    world.after(1.0, lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        world.run()

    assert gc.isenabled()

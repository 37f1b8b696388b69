"""Chance is our own: what a program does with the shared generator changes nothing."""

import os
import random

from effectonce._random import random_bits, rng
from effectonce.stores.redis.records import first_revision


def test_who_seeds_the_shared_generator_does_not_choose_our_delays_and_revisions():
    def chosen():
        random.seed(0)
        return rng(), random_bits(48), first_revision()

    assert not set(chosen()) & set(chosen())


def test_two_forks_choose_otherwise():
    def chosen_in_a_fork():
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writable, repr(rng()).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writable)
        with os.fdopen(readable) as answer:
            return answer.read()

    assert chosen_in_a_fork() != chosen_in_a_fork()

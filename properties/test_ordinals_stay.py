"""Whatever becomes of a topic, each message keeps its ordinal, and nobody gets it anew.

The model is a dictionary of all messages that were ever put. Segments, removals, ends of all kinds
and damage are rules like puts; the disk is simulated.
"""

from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from torture.numbered_topic import DAMAGES, NumberedTopic

COUNTS = st.integers(1, 5)
SEEDS = st.integers(0, 2**32 - 1)


class OrdinalsStay(RuleBasedStateMachine):
    """A topic against what it was given."""

    @initialize()
    def begin(self):
        self.topic = NumberedTopic()

    @rule(count=COUNTS, is_synced=st.booleans())
    def put(self, count, is_synced):
        self.topic.put(count, is_synced=is_synced)

    @rule()
    def rotate(self):
        self.topic.rotate()

    @rule()
    def sleep(self):
        self.topic.sleep()

    @rule(count=COUNTS)
    def remove(self, count):
        self.topic.remove(count)

    @rule()
    def stop(self):
        self.topic.stop()

    @rule()
    def kill(self):
        self.topic.kill()

    @rule(seed=SEEDS, is_synced=st.booleans())
    def cut_power(self, seed, is_synced):
        self.topic.cut_power(Random(seed), is_synced=is_synced)

    @rule(what=st.sampled_from(DAMAGES), seed=SEEDS)
    def damage(self, what, seed):
        self.topic.damage(what, Random(seed))

    @invariant()
    def each_message_has_its_ordinal(self):
        if hasattr(self, "topic"):
            self.topic.check()


TestOrdinalsStay = OrdinalsStay.TestCase

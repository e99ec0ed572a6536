"""Answers to batches that a Kafka library has: in order, once, and to whoever asks last."""

from poe.client.producer.kafka_answers import Answers
from poe.client.producer.transport import OutgoingBatch
from poe.errors import ConnectionClosed


class Link:
    is_over = False


class Asked:
    """A batch, and what its sender was told."""

    def __init__(self, partition=0, message=b"m", *, takes=True):
        self.batch = OutgoingBatch(b"t", partition, [message], None, 1)
        self.takes = takes
        self.told = []

    def __call__(self, answer):
        self.told.append(answer)
        return self.takes


def begin(answers, link, asked):
    return answers.begin(link, asked.batch, asked)


def test_answers_come_in_the_order_of_the_batches():
    answers, link, first, second = Answers(), Link(), Asked(), Asked()
    first.told = second.told
    one, two = begin(answers, link, first), begin(answers, link, second)
    answers.end(two, 8)
    answers.tell()
    assert second.told == []
    answers.end(one, 7)
    answers.tell()
    answers.tell()
    assert second.told == [7, 8]


def test_partitions_do_not_wait_for_each_other():
    answers, link, first, second = Answers(), Link(), Asked(0), Asked(1)
    begin(answers, link, first)
    answers.end(begin(answers, link, second), 3)
    answers.tell()
    assert (first.told, second.told) == ([], [3])


def test_a_batch_that_comes_again_over_the_next_link_is_not_given_to_the_library_twice():
    answers, lost, asked = Answers(), Link(), Asked()
    sending = begin(answers, lost, asked)
    lost.is_over = True
    assert begin(answers, Link(), asked) is None
    answers.end(sending, 5)
    answers.tell()
    assert asked.told == [5]


def test_a_batch_that_was_on_disk_meanwhile_is_recognised():
    answers, lost, asked, from_disk = Answers(), Link(), Asked(), Asked()
    sending = begin(answers, lost, asked)
    lost.is_over = True
    assert begin(answers, Link(), from_disk) is None
    answers.end(sending, 5)
    answers.tell()
    assert (asked.told, from_disk.told) == ([], [5])


def test_an_answer_that_came_without_a_link_waits_for_the_batch_to_come_again():
    answers, lost, asked = Answers(), Link(), Asked()
    sending = begin(answers, lost, asked)
    lost.is_over = True
    error = ConnectionClosed("gone")
    answers.end(sending, error)
    answers.tell()
    assert asked.told == []
    assert begin(answers, Link(), asked) is None
    answers.tell()
    assert asked.told == [error]


def test_an_answer_that_is_not_taken_waits_for_the_batch_to_come_again():
    answers, asked, again = Answers(), Asked(takes=False), Asked()
    answers.end(begin(answers, Link(), asked), 5)
    answers.tell()
    assert asked.told == [5]
    assert begin(answers, Link(), again) is None
    answers.tell()
    assert (asked.told, again.told) == ([5], [5])


def test_an_answer_is_for_the_link_that_is_there_when_it_is_told():
    answers, lost, asked, again = Answers(), Link(), Asked(), Asked()
    answers.end(begin(answers, lost, asked), 5)
    lost.is_over = True
    assert begin(answers, Link(), again) is None
    answers.tell()
    assert (asked.told, again.told) == ([], [5])


def test_an_answer_nobody_asks_for_again_is_dropped_when_a_later_batch_comes():
    answers, lost, given_up, later = Answers(), Link(), Asked(), Asked(message=b"later")
    first = begin(answers, lost, given_up)
    lost.is_over = True
    answers.end(first, 1)
    second = begin(answers, Link(), later)
    answers.end(second, 2)
    answers.tell()
    assert (given_up.told, later.told) == ([], [2])
    assert begin(answers, Link(), given_up) is not None


def test_batches_with_equal_messages_are_two():
    answers, link, one, two = Answers(), Link(), Asked(), Asked()
    assert begin(answers, link, one) is not begin(answers, link, two)


def test_equal_batches_of_two_links_that_are_both_there_are_two():
    answers, one, two = Answers(), Asked(), Asked()
    first, second = begin(answers, Link(), one), begin(answers, Link(), two)
    assert first is not None
    assert second is not None
    answers.end(first, 5)
    answers.end(second, 6)
    answers.tell()
    assert (one.told, two.told) == ([5], [6])

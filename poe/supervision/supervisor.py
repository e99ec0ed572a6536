"""The supervisor actor: exits and requests in, verdicts of its children's keeper carried out.

A thin GenServer around `OrderedChildren` or `DynamicChildren`, chosen by strategy. It starts its
children in `init`, stops them in `terminate`, and ends with reason shutdown when it gives up or
when a significant child has ended. It survives whatever it does not understand.

Source: OTP stdlib 4.2, supervisor.erl; differs as `spec/otp.md` §11 proposes: an unknown call is
answered with an error and an unknown cast is logged, where OTP crashes.
"""

import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from poe.actors import IGNORE, SHUTDOWN, Call, Error, Exit, GenServer, LoopAddress, Stop
from poe.actors.server_cell import cell_of_actor
from poe.errors import InvalidChildSpec, UnknownRequest
from poe.supervision.api import (
    CountChildren,
    DeleteChild,
    GetChildSpec,
    RestartChild,
    StartChild,
    StartDynamicChild,
    SupervisorRequest,
    TerminateChild,
    WhichChildren,
)
from poe.supervision.child_key import is_hashable
from poe.supervision.child_spec import (
    ChildKind,
    ChildSpec,
    Restart,
    Strategy,
    SupervisorFlags,
    check_children,
    split_configuration,
)
from poe.supervision.dynamic_children import DynamicChildren
from poe.supervision.lifecycle import Retry
from poe.supervision.limits import unreachable_limits
from poe.supervision.ordered_children import OrderedChildren
from poe.supervision.restart_delays import RestartDue

logger = logging.getLogger("poe.supervision")


class Supervisor(GenServer):
    """Starts, watches, restarts and stops children as its flags and their specs say.

    Start it with `(flags, specs)`, or override `configure` and start it with arguments of your own.

    Life: running - all children of the list were started - until its parent asks it to end (any
    reason), it gives up, or it shuts down with its significant children; then all children are gone
    before it is. Children are linked: if it is killed, they end too, but in no order.
    """

    trap_exits = True

    # Each child may leave one exit here while the supervisor waits for another child; one that was
    # refused would never be handled.
    mailbox_max: ClassVar[int] = 1_000_000

    strict: ClassVar[bool] = False
    """Crash at an unknown call or cast, exactly as OTP does."""

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401 - as Python passes them
        """Refuse a subclass that would start no children.

        Raises:
            TypeError: it overrides `init` with a plain function, which awaits no start.
        """
        super().__init_subclass__(**kwargs)
        if not inspect.iscoroutinefunction(cls.init):
            msg = (
                f"{cls.__name__} replaces init, which starts the children; "
                "override configure, or await super().init(...) in an async init"
            )
            raise TypeError(msg)

    # The arguments are whatever a subclass wants; the result may also be the token IGNORE.
    def configure(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Turn the start arguments into `(flags, specs)`, or return IGNORE to run nothing."""
        return (*args, kwargs) if kwargs else args

    async def init(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the runtime's directive
        """Check the configuration and start the children, left to right.

        Raises:
            InvalidChildSpec: the configuration is not `(flags, specs)`, or the children do not fit
                each other or the flags.
        """
        configuration = self.configure(*args, **kwargs)
        if configuration is IGNORE:
            return IGNORE
        flags, specs = split_configuration(configuration)
        check_children(flags, specs)
        for warning in unreachable_limits(flags, specs):
            logger.warning("%s: %s", cell_of_actor(self).address, warning)
        children = _keep(self, flags, specs)
        cell_of_actor(self).behaviour = SupervisorBehaviour((args, kwargs), children)
        failure = await children.start_all()
        return None if failure is None else Stop((SHUTDOWN, failure))

    def code_change(self, argument: object) -> None:
        """Ask `configure` again and go on with what it returns; IGNORE changes nothing.

        Children are matched by id and keep running; new ones are not started, and those that are
        no longer listed stay, as the last in start order. Restarts that were counted still count.
        A dynamic child that was temporary when it started cannot be restarted, whatever the new
        template says: its arguments were not kept, and each try counts as one that failed.

        Raises:
            InvalidChildSpec: the children do not fit each other or the flags, or the strategy
                became simple_one_for_one or was it; nothing has changed.
        """
        del argument
        behaviour: SupervisorBehaviour = cell_of_actor(self).behaviour
        args, kwargs = behaviour.arguments
        configuration = self.configure(*args, **kwargs)
        if configuration is IGNORE:
            return
        flags, specs = split_configuration(configuration)
        check_children(flags, specs)
        is_dynamic = isinstance(behaviour.children, DynamicChildren)
        if (flags.strategy is Strategy.SIMPLE_ONE_FOR_ONE) is not is_dynamic:
            msg = f"a running supervisor cannot change to or from {Strategy.SIMPLE_ONE_FOR_ONE}"
            raise InvalidChildSpec(msg, "strategy", flags.strategy)
        behaviour.children.reconfigure(flags, specs)

    async def handle_call(self, request: object, caller: Call) -> object:
        """Answer a request of `poe.supervision.api`."""
        del caller
        children = cell_of_actor(self).behaviour.children
        if isinstance(request, SupervisorRequest):
            # Its constructor has done so, unless it was made another way.
            try:
                request.check()
            except InvalidChildSpec as error:
                return Error(error)
        match request:
            case StartChild() | StartDynamicChild():
                answer: object = await children.start_child(request)
            case TerminateChild(child):
                answer = await children.terminate_child(child)
            case RestartChild(child_id):
                answer = await children.restart_child(child_id)
            case DeleteChild(child_id):
                answer = children.delete_child(child_id)
            case WhichChildren():
                answer = children.which_children()
            case CountChildren():
                answer = await children.count_children()
            case GetChildSpec(child):
                answer = await children.get_child_spec(child)
            case _:
                answer = Error(_refuse(self, "call", request))
        return answer

    async def handle_cast(self, message: object) -> Stop | None:
        """Go on with a restart that had failed."""
        if isinstance(message, Retry) and is_hashable(message.child):
            children = cell_of_actor(self).behaviour.children
            return _go_on(is_running=await children.on_retry(message.child))
        _refuse(self, "cast", message)
        return None

    async def handle_info(self, message: object) -> Stop | None:
        """Handle the exit of a child, or the end of a child's wait for its restart."""
        children = cell_of_actor(self).behaviour.children
        if type(message) is Exit and (message.ref is None or type(message.ref) is LoopAddress):
            return _go_on(is_running=await children.on_exit(message.ref, message.reason))
        if type(message) is RestartDue and is_hashable(message.child):
            await children.on_due(message)
        else:
            _log_unexpected(self, "message", message)
        return None

    async def terminate(self, reason: object) -> None:
        """Stop all children."""
        del reason
        await cell_of_actor(self).behaviour.children.stop_all()


@dataclass(slots=True)
class SupervisorBehaviour:
    """What a supervisor keeps, in its cell: its attributes belong to the subclasses."""

    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    children: OrderedChildren | DynamicChildren


def _keep(
    supervisor: Supervisor, flags: SupervisorFlags, specs: Sequence[ChildSpec]
) -> OrderedChildren | DynamicChildren:
    if flags.strategy is Strategy.SIMPLE_ONE_FOR_ONE:
        return DynamicChildren(supervisor, flags, specs[0])
    return OrderedChildren(supervisor, flags, specs)


def _refuse(supervisor: Supervisor, way: str, message: object) -> UnknownRequest:
    """Log what no supervisor understands; a strict one crashes."""
    unknown = UnknownRequest(type(message).__name__)
    if supervisor.strict:
        raise unknown
    _log_unexpected(supervisor, way, message)
    return unknown


def _log_unexpected(supervisor: Supervisor, way: str, message: object) -> None:
    address, kind = cell_of_actor(supervisor).address, type(message).__name__
    logger.error("%s ignores an unexpected %s: %s", address, way, kind)


def _go_on(*, is_running: bool) -> Stop | None:
    return None if is_running else Stop(SHUTDOWN)


def supervisor_spec(
    name: str,
    flags: SupervisorFlags,
    children: Sequence[ChildSpec],
    *,
    restart: Restart = Restart.PERMANENT,
) -> ChildSpec:
    """Return the spec of a supervisor, registered as `name`, of these children."""
    args = (flags, children)
    return ChildSpec(
        id=name, actor=Supervisor, args=args, kind=ChildKind.SUPERVISOR, name=name, restart=restart
    )


def dynamic_supervisor(
    name: str, template: ChildSpec, flags: SupervisorFlags | None = None
) -> ChildSpec:
    """Return the spec of a supervisor, registered as `name`, that begins with no child.

    `start_dynamic_child` has it start one by the template, with arguments of its own.
    """
    flags = flags or SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE)
    return supervisor_spec(name, flags, [template])

#!/usr/bin/env escript
%% The original, driven by lines: what torture/original.py asks it.
%%
%%   escript original.escript MODULES BASE
%%
%% MODULES is the folder with the original's compiled modules, BASE its data. It says `ready`, or
%% `refused` and ends. Then one request a line, messages in base64:
%%
%%   put TOPIC MESSAGE   the pointer
%%   sync TOPIC          ok
%%   rotate              ok: writers with ten messages or more have got a successor
%%   read LIMIT          a line `TOPIC POINTER MESSAGE` for each message, then `end`
%%
%% It stops cleanly at the end of its input.

main([Modules, Base]) ->
    code:add_patha(Modules),
    error_logger:tty(false),
    %% Nothing is to happen by itself.
    [application:set_env(poe, Key, Value) || {Key, Value} <- [
        {check_interval, 3600}, {worker_timeout, 3600}, {max_age, infinity},
        {count_limit, 10}, {size_limit, 1 bsl 40}, {buffer_count_max, 5}]],
    process_flag(trap_exit, true),
    case poe_sup:start_link(Base) of
        {ok, Supervisor} ->
            io:format("ready~n"),
            serve(io:get_line("")),
            exit(Supervisor, shutdown),
            receive {'EXIT', Supervisor, _} -> ok end;
        {error, _} ->
            io:format("refused~n")
    end.

serve(eof) ->
    ok;
serve(Line) ->
    answer(string:lexemes(Line, " \n")),
    serve(io:get_line("")).

answer(["put", Topic, Message]) ->
    io:format("~b~n", [poe:put(list_to_binary(Topic), base64:decode(Message))]);
answer(["sync", Topic]) ->
    ok = appendix_server:sync(poe_server:write_pid(list_to_binary(Topic))),
    io:format("ok~n");
answer(["rotate"]) ->
    poe_server:maybe_create_new_partitions(),
    io:format("ok~n");
answer(["read", Limit]) ->
    [read(Topic, 0, list_to_integer(Limit)) || Topic <- poe_server:topics()],
    io:format("end~n").

read(Topic, Pointer, Limit) ->
    case records(Topic, Pointer, Limit) of
        [] ->
            ok;
        Records ->
            [io:format("~s ~b ~s~n", [Topic, P, base64:encode(M)]) || {P, M} <- Records],
            {Last, _} = lists:last(Records),
            read(Topic, Last, Limit)
    end.

%% One by one, or as slices of its files.
records(Topic, Pointer, 1) ->
    case poe:next(Topic, Pointer) of not_found -> []; Record -> [Record] end;
records(Topic, Pointer, Limit) ->
    Server = poe_server:read_pid(Topic, Pointer),
    case appendix_server:data_slice(Server, Pointer, Limit) of not_found -> []; Slice -> Slice end.

#!/bin/bash
# Fails when an include goes against the layers. Usage: check-layers.sh ROOM=DIR:USES… (see Makefile)
# A file may include its own room, the rooms in USES, and system headers; `proto` stands for the
# generated *.pb-c.h headers. Included from nowhere: server/main.c, which may use everything.
set -u
declare -A dir uses
failures=0
for argument in "$@"; do
    room=${argument%%=*}
    rest=${argument#*=}
    dir[$room]=${rest%%:*}
    uses[$room]=" $room ${rest#*:} "
done

# The room of an included path: the longest directory that matches.
room_of() {
    local best="" best_length=0 room
    case $1 in *.pb-c.h) echo proto; return ;; esac
    for room in "${!dir[@]}"; do
        case $1 in
        "${dir[$room]}"/*)
            if [ ${#dir[$room]} -gt $best_length ]; then best=$room best_length=${#dir[$room]}; fi ;;
        esac
    done
    echo "$best"
}

checked=0
for room in "${!dir[@]}"; do
    while IFS=: read -r file line text; do
        [ "$(room_of "$file")" = "$room" ] || continue # of a room inside this one
        path=${text#*\"}
        path=${path%%\"*}
        target=$(room_of "$path")
        checked=$((checked + 1))
        case "${uses[$room]}" in
        *" ${target:-nothing} "*) ;;
        *)
            echo "$file:$line: room '$room' may not include \"$path\" (room '${target:-none}'); it may use:${uses[$room]}"
            failures=$((failures + 1)) ;;
        esac
    done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' "${dir[$room]}" --include='*.c' --include='*.h')
done
if [ "$checked" -eq 0 ]; then
    echo "check-layers: no include found; is this the root of the project?"
    exit 1
fi
echo "check-layers: $checked includes, $failures against the layers"
[ "$failures" -eq 0 ]

#!/bin/sh
# sweep.sh [JOBS=20] [STEPS=5000]: trains as many networks with different learning rates, one device
# each, as devices are free; prints the result of each, the best one last.
jobs=${1:-20}
ids=
number=1
while [ "$number" -le "$jobs" ]; do
    rate=$(awk "BEGIN { print 0.01 * 1.3 ^ $number }")
    id=$(tidepool run --detach --name sweep -- python3 numpy_digits.py --steps "${2:-5000}" \
        --rate "$rate" --out "sweep-$number.npz" 2>/dev/null) || exit
    ids="$ids $id"
    number=$((number + 1))
done
for id in $ids; do
    tidepool wait "$id" > /dev/null || echo "$id did not end well: tidepool jobs $id" >&2
    echo "$id $(tidepool logs "$id" | tail -n 1)"
done | sort -k 7 -n

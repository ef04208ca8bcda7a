#!/bin/sh
# sweep.sh [JOBS=20] [STEPS=5000]: trains as many networks with different learning rates, one device
# each, as devices are free; prints the result of each, the best one last.
ids=$(tidepool run --detach --array "${1:-20}" --name sweep -- sh -c '
    rate=$(awk "BEGIN { print 0.01 * 1.3 ^ $ARRAY_INDEX }")
    exec python3 numpy_digits.py --steps "$1" --rate "$rate" --out "sweep-$ARRAY_INDEX.npz"
' sweep "${2:-5000}") || exit
for id in $ids; do
    tidepool wait "$id" > /dev/null || echo "$id did not end well: tidepool jobs $id" >&2
    echo "$id $(tidepool logs "$id" | tail -n 1)"
done | sort -k 7 -n

#!/bin/sh
# Counts to 600, a tenth of a second each: a plain job. What it knows of Tidepool is one file, which
# is there while its devices are asked for: then it ends, and goes on from what it kept in its folder.
count=$(cat shell.count 2>/dev/null || echo 0)
while [ "$count" -lt "${1:-600}" ]; do
    count=$((count + 1))
    echo "$count" > shell.count.new && mv shell.count.new shell.count
    echo "step $count"
    if [ -n "${TIDEPOOL_NOTICE_FILE:-}" ] && [ -e "$TIDEPOOL_NOTICE_FILE" ]; then
        echo "asked for the device: saved at $count"
        exec tidepool report --checkpointed-step "$count" --acknowledge
    fi
    sleep 0.1
done
rm -f shell.count

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Puts the demo's English text into a folder as train.txt and valid.txt (the last tenth): the King James Bible of
# Debian's bible-kjv, 4.1 MB in the public domain, or, where that is not to be had, the licence texts that every
# Debian has. Does nothing when the files are there.
#   scripts/demo_text.sh FOLDER
set -euo pipefail

folder=$1
[ -s "$folder/train.txt" ] && [ -s "$folder/valid.txt" ] && exit 0
mkdir -p "$folder"
text=$folder/all.txt

if command -v bible >/dev/null; then
  # One verse a line, each with its reference in front, which is cut off.
  bible -f gen1:1-rev22:21 </dev/null 2>/dev/null | sed 's/^[^ ]* //' >"$text" || true
fi
if [ "$(stat -c %s "$text" 2>/dev/null || echo 0)" -lt 1000000 ]; then
  echo "headrace: no text of bible-kjv here, taking the licence texts instead"
  # head ends the pipe early once there is enough.
  { find /usr/share/common-licenses /usr/share/doc -type f \( -path '*/common-licenses/*' -o -name copyright \) \
    -size +5k -print0 | sort -z | xargs -0 cat | LC_ALL=C tr -cd '\11\12\40-\176' | head -c 4300000; } >"$text" ||
    true
fi

bytes=$(stat -c %s "$text")
train=$((bytes / 10 * 9))
head -c "$train" "$text" >"$folder/train.tmp"
tail -c +$((train + 1)) "$text" >"$folder/valid.txt"
mv "$folder/train.tmp" "$folder/train.txt"

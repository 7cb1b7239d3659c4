# Defines a filter driver for every file, by info/attributes and .gitattributes.
for side in clean smudge process; do set_config "$COMMON/config" filter.mine.$side "$PAYLOAD; cat"; done
mkdir -p "$COMMON/info"
echo '* filter=mine diff=mine merge=mine' | tee -a "$COMMON/info/attributes" >> .gitattributes
echo more >> a.txt

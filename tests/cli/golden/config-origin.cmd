echo "{\"color\": \"never\"}" >berth.json; BERTH_NO_INPUT=true "$berth" config show --origin --plain --reproducible | grep -E "^(SETTING|color|no_input|reproducible)"; rm berth.json

"$berth" offers -h

"$berth" offer

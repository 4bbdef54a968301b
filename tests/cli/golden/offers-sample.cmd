"$berth" offers gpu:h100 'nodes>=4' fabric:ib

"$berth" offers --gpu h100-smx -q

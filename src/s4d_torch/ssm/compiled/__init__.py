"""The same mathematics as machine code: operators of torch, and the loops behind them."""

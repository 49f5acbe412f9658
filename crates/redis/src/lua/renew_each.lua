-- Extends holds: see renew.lua. An error of one renewal does not stop the others.
return answer_items(renew_item)
